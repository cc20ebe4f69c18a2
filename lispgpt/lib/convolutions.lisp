; Convolutions and pools over 1, 2 or 3 dimensions, as products: of each place of the result a row of what it sees, times
; the weights.  "A guide to convolution arithmetic for deep learning", Dumoulin and Visin 2016.
;
; x is [images rows columns channels], with :channels-first true [images channels rows columns], and so with fewer or more
; dimensions between.  Options, each one number for all dimensions or a list of one for each: :strides 1, :padding 0 (a
; number, or [before after]), :dilation 1; and :groups 1.  They have the gradients of what they are made of.
(require-dialect linalg tensor)
(require nn)
(require arrays)

(defn known-options [given names]
  (fold (fn [_ name] (if (= (count (filter (fn [n] (= n name)) names)) 0)
                       (error (str "there is no option :" name " here, but " names) given)
                       nil))
        nil
        (keys given)))

; a number as a list of so many; a list as it is
(defn for-each-of [value n] (if (list? value) value (map (fn [_] value) (range n))))

; [strides padding dilation], each with one for each of n dimensions, padding as [before after]
(defn geometry [options n]
  (let [each (fn [name otherwise] (for-each-of (get options name otherwise) n))]
    [(each :strides 1) (map (fn [p] (for-each-of p 2)) (each :padding 0)) (each :dilation 1)]))

; how many places a window of a size has along a dimension
(defn places [extent size stride [before after] dilation]
  (+ 1 (quot (- (+ extent before after) 1 (* dilation (- size 1))) stride)))

; where a window's tap i at place p reads
(defn read-at [p i stride before dilation] (- (+ (* p stride) (* i dilation)) before))
(defn held [place extent] (max 0 (min (- extent 1) place)))
(defn inside [place extent] (and (>= place 0) (< place extent)))

; x [n h w c] -> [n oh ow groups kh kw c/groups]: what each place of a window sees, `outside` where that is none of x
(defn seen-by-windows [x [kh kw] [[sh sw] [[top bottom] [left right]] [dh dw]] groups outside]
  (let [[n h w c] (shape x)
        [oh ow] [(places h kh sh [top bottom] dh) (places w kw sw [left right] dw)]
        each (quot c groups)
        padded (< 0 (max top bottom left right))]
    (tensor [b n p oh q ow g groups i kh j kw k each]
      (let [[y z channel] [(read-at p i sh top dh) (read-at q j sw left dw) (+ (* g each) k)]]
        (if padded
          (select (and (inside y h) (inside z w)) (at x b (held y h) (held z w) channel) outside)
          (at x b y z channel))))))

; the sum of all that windows see of each element of x [n h w c]
(defn seen-of-each [seen [n h w c] [kh kw] [[sh sw] [[top _] [left _]] [dh dw]] groups]
  (let [[oh ow each] [(dim seen 1) (dim seen 2) (quot c groups)]
        summed (tensor [b n y h z w g groups k each]
                 (fold (fn [sum tap]
                         (let [[i j] [(quot tap kw) (mod tap kw)]
                               [y z] [(- (+ y top) (* i dh)) (- (+ z left) (* j dw))]
                               [p q] [(quot (max y 0) sh) (quot (max z 0) sw)]
                               real (and (and (>= y 0) (< p oh)) (and (>= z 0) (< q ow)))
                               real (if (= sh 1) real (and real (= (mod (max y 0) sh) 0)))
                               real (if (= sw 1) real (and real (= (mod (max z 0) sw) 0)))]
                           (+ sum (select real (at seen b (held p oh) (held q ow) g i j k) 0.0))))
                       0.0
                       (range (* kh kw))))]
    (reshape summed [n h w c])))
; the two, each of which is the other's gradient; a window of one place at every place sees x itself
(defn patches [x size geometry groups outside]
  (let [[n h w c] (shape x)
        all (fn [x] (seen-by-windows x size geometry groups outside))]
    (defgradient all [g y x] [(unpatched g [n h w c] size geometry groups)])
    (if (and (= (fold max 1 (concat size (first geometry))) 1) (no-padding (nth geometry 1)))
      (reshape x [n h w groups 1 1 (quot c groups)])
      (all x))))
(defn no-padding [padding]
  (let [all (fold concat [] padding)] (and (= (fold max 0 all) 0) (= (fold min 0 all) 0))))
(defn unpatched [seen sizes size geometry groups]
  (let [all (fn [seen] (seen-of-each seen sizes size geometry groups))]
    (defgradient all [g y seen] [(patches g size geometry groups 0.0)])
    (all seen)))

; ---- any number of dimensions as two

(defn last-of [list] (nth list (- (count list) 1)))
(defn channels-last [x] (let [r (rank x)] (transpose x (concat [0] (range 2 r) [1]))))
(defn channels-first [x] (let [r (rank x)] (transpose x (concat [0 (- r 1)] (range 1 (- r 1))))))

; of 1 dimension, and of 3, whose first one goes into images and channels: [x w geometry], of two dimensions
(defn of-two [x w [strides padding dilation] groups]
  (let [[n c] [(dim x 0) (last-of (shape x))] d (- (rank x) 2)]
    (cond (= d 2) [x w [strides padding dilation]]
          (= d 1) [(reshape x [n 1 (dim x 1) c])
                   (reshape w [(dim w 0) (dim w 1) 1 (dim w 2)])
                   [(cons 1 strides) (cons [0 0] padding) (cons 1 dilation)]]
          :else (let [[o each kd kh kw] (shape w)
                      [_ depth h width _] (shape x)
                      first-of [[(first strides) 1] [(first padding) [0 0]] [(first dilation) 1]]
                      seen (patches (reshape x [n depth (* h width) c]) [kd 1] first-of groups 0.0)]
                  [(reshape seen [(* n (dim seen 1)) h width (* kd c)])
                   (reshape (transpose w [0 2 1 3 4]) [o (* kd each) kh kw])
                   [(rest strides) (rest padding) (rest dilation)]]))))

; the sizes of a convolution's result without images and channels
(defn sizes-of-places [x sizes [strides padding dilation]]
  (map places (drop 1 (take (- (rank x) 1) (shape x))) sizes strides padding dilation))

; ---- convolutions

; x and w [out channels/groups rows columns] of two dimensions, channels last -> [images rows columns out]
(defn convolved-rows [x w geometry groups]
  (if (and (= groups (dim w 0)) (= groups (last-of (shape x))) (> groups 1) (= (capability lane-registers) 0))
    (convolved-channels x w geometry)
    (convolved-groups x w geometry groups)))

(defn convolved-groups [x w geometry groups]
  (let [[o each kh kw] (shape w)
        [strides _ _] geometry
        of-one (fn [x w seen] (multiplied-taps seen w groups))]
    (defgradient of-one [g y x w seen]
      [(convolved-rows g (turned w groups) (turned-geometry [kh kw] geometry) groups)
       (if (and (= groups 1) (>= each 16) (= (capability lane-registers) 0))
         (gradient-of-windows g x (shape w) geometry)
         (gradient-of-taps g seen (shape w) groups))
       nil])
    (let [seen (patches x [kh kw] geometry groups 0.0)]
      (if (= (max (first strides) (nth strides 1)) 1)
        (of-one x w seen)
        (multiplied-taps seen w groups)))))

; Where each channel is a group of its own, there is nothing to multiply matrices of: the sum over taps of what lies there,
; times a number for each channel.  x and w [c 1 rows columns], of CPUs, whose vectors are neighbouring channels
(defn convolved-channels [x w geometry]
  (let [[c _ kh kw] (shape w)
        [strides padding dilation] geometry
        sizes (shape x)
        of-one (fn [x w] (summed-taps (surrounded x padding) w geometry))]
    (defgradient of-one [g y x w]
      [(if (= (fold max 1 strides) 1)
         (summed-taps (surrounded g (nth (turned-geometry [kh kw] geometry) 1)) (turned w c) geometry)
         (reshape
           (seen-of-each (tensor [b (dim g 0) p (dim g 1) q (dim g 2) k c i kh j kw one 1] (* (at g b p q k) (at w k 0 i j)))
                         sizes [kh kw] geometry c)
           sizes))
       (sums-of-taps g (surrounded x padding) [kh kw] geometry)])
    (of-one x w)))

; x [n h w c] with what pads it -> [n oh ow c]
(defn summed-taps [x w [[sh sw] _ [dh dw]]]
  (let [[n h width c] (shape x)
        [_ _ kh kw] (shape w)
        w (transpose (reshape w [c (* kh kw)]) [1 0])]
    (tensor [b n p (places h kh sh [0 0] dh) q (places width kw sw [0 0] dw) k c]
      (fold (fn [sum tap]
              (+ sum (* (at w tap k) (at x b (+ (* p sh) (* dh (quot tap kw))) (+ (* q sw) (* dw (mod tap kw))) k))))
            0.0
            (range (* kh kw))))))

; the gradient by w of that
(defn sums-of-taps [g x [kh kw] [[sh sw] _ [dh dw]]]
  (let [[n oh ow c] (shape g)
        of-tap (fn [tap]
                 (sum-along
                   (reshape
                     (tensor [b n p oh q ow k c]
                       (* (at g b p q k) (at x b (+ (* p sh) (* dh (quot tap kw))) (+ (* q sw) (* dw (mod tap kw))) k)))
                     [(* n oh ow) c])
                   0))]
    (reshape (transpose (stack (map of-tap (range (* kh kw))) 0) [1 0]) [c 1 kh kw])))

; seen as `patches` gives it, times w [out channels/groups rows columns]
(defn multiplied-taps [seen w groups]
  (let [[o each kh kw] (shape w)
        [n oh ow] (take 3 (shape seen))
        [rows taps] [(* n oh ow) (* kh kw each)]
        w (reshape (transpose w [0 2 3 1]) [groups (quot o groups) taps])
        made (if (= groups 1)
               (matmul-transposed (reshape seen [rows taps]) (reshape w [o taps]))
               (contract [r g o] (reshape seen [rows groups taps]) [r g k] w [g o k]))]
    (reshape made [n oh ow o])))

; Where windows stand at every place, what the gradient is by what they see is a convolution of its own: of weights
; [channels out/groups rows columns] whose rows and columns are in the other order
(defn turned [w groups]
  (let [[o each kh kw] (shape w)
        w (reshape w [groups (quot o groups) each kh kw])]
    (reshape (tensor [g groups e each c (quot o groups) i kh j kw] (at w g c e (- (- kh 1) i) (- (- kw 1) j)))
             [(* groups each) (quot o groups) kh kw])))
(defn turned-geometry [size [strides padding dilation]]
  [strides
   (map (fn [n [before after] d] [(- (* d (- n 1)) before) (- (* d (- n 1)) after)]) size padding dilation)
   dilation])

; the gradient by weights of such a shape, of the gradient g [n oh ow o] and what windows see
(defn gradient-of-taps [g seen [o each kh kw] groups]
  (let [rows (fold * 1 (take 3 (shape g)))
        taps (* kh kw each)
        made (if (= groups 1)
               (contract [o k] (reshape g [rows o]) [r o] (reshape seen [rows taps]) [r k])
               (contract [g o k] (reshape g [rows groups (quot o groups)]) [r g o]
                 (reshape seen [rows groups taps]) [r g k]))]
    (transpose (reshape made [o kh kw each]) [0 3 1 2])))

; gradient-of-taps of windows at every place, of CPUs: what pads x is put around it first, so that to read what windows see
; asks nothing of places
(defn gradient-of-windows [g x [o each kh kw] [strides padding dilation]]
  (let [seen (seen-by-windows (surrounded x padding) [kh kw] [strides [[0 0] [0 0]] dilation] 1 0.0)]
    (gradient-of-taps g seen [o each kh kw] 1)))

; x [n h w c] with zeros around its images
(defn surrounded [x [[top bottom] [left right]]]
  (let [[n h w c] (shape x)]
    (if (no-padding [[top bottom] [left right]])
      x
      (tensor [b n i (+ top h bottom) j (+ left w right) k c]
        (let [[y z] [(- i top) (- j left)]]
          (select (and (inside y h) (inside z w)) (at x b (held y h) (held z w) k) 0.0))))))

; (convolution x w {:strides 2 :padding 1}): w is [out channels/groups rows columns]
(defn convolution [x w & options]
  (let [options (first (concat options [{}]))
        _ (known-options options ["strides" "padding" "dilation" "groups" "channels-first"])
        x (if (get options :channels-first false) (channels-last x) x)
        groups (get options :groups 1)
        each (divided "a number of channels of" (last-of (shape x)) groups "groups")
        _ (when (!= each (dim w 1))
            (error (str "taps are " (sizes-as-text (concat ["out" each] (drop 2 (shape w)))) " here, and "
                        (sizes-as-text (shape w)) " are given")))
        _ (divided "a number of outputs of" (dim w 0) groups "groups")
        shaped (geometry options (- (rank x) 2))
        sizes (sizes-of-places x (drop 2 (shape w)) shaped)
        [plane weights in-plane] (of-two x w shaped groups)
        made (reshape (convolved-rows plane weights in-plane groups) (concat [(dim x 0)] sizes [(dim w 0)]))]
    (if (get options :channels-first false) (channels-first made) made)))

; what a convolution's gradient makes of x [images rows columns in]: w is [in out/groups rows columns], as it would be of the
; convolution from `out` to `in`; :more, 0, is how much longer the result is at the end, where strides leave that open
(defn transposed-convolution [x w & options]
  (let [options (first (concat options [{}]))
        _ (known-options options ["strides" "padding" "dilation" "groups" "more" "channels-first"])
        x (if (get options :channels-first false) (channels-last x) x)
        groups (get options :groups 1)
        d (- (rank x) 2)
        [strides padding dilation] (geometry options d)
        more (for-each-of (get options :more 0) d)
        own (fn [list otherwise] (if (= d 1) (cons otherwise list) list))
        [h width] (own (drop 1 (take (+ d 1) (shape x))) 1)
        [kh kw] (own (drop 2 (shape w)) 1)
        [strides padding dilation more] [(own strides 1) (own padding [0 0]) (own dilation 1) (own more 0)]
        length (fn [n k s [before after] e m] (+ (- (* s (- n 1)) before after) (* e (- k 1)) 1 m))
        [oh ow] (map length [h width] [kh kw] strides padding dilation more)
        [n c each] [(dim x 0) (last-of (shape x)) (dim w 1)]
        rows (reshape x [(* n h width) groups (quot c groups)])
        w (reshape (transpose (reshape w [c each kh kw]) [0 2 3 1]) [groups (quot c groups) (* kh kw each)])
        seen (contract [r g k] rows [r g c] w [g c k])
        made (unpatched (reshape seen [n h width groups kh kw each]) [n oh ow (* groups each)] [kh kw]
                        [strides padding dilation] groups)
        made (if (= d 1) (reshape made [n ow (* groups each)]) made)]
    (if (> d 2) (error "a transposed convolution is of 1 or 2 dimensions" x) nil)
    (if (get options :channels-first false) (channels-first made) made)))

; ---- pools

; (f y) of y [… window], the last dimension for each element of what windows of a size see
(defn pooled [f x size options outside]
  (let [options (first (concat options [{}]))
        _ (known-options options ["strides" "padding" "dilation" "channels-first"])
        x (if (get options :channels-first false) (channels-last x) x)
        d (- (rank x) 2)
        size (for-each-of size d)
        [strides padding dilation] (geometry {:strides (get options :strides size)
                                              :padding (get options :padding 0)
                                              :dilation (get options :dilation 1)} d)
        _ (if (> d 2) (error "a pool is of 1 or 2 dimensions" x) nil)
        own (fn [list otherwise] (if (= d 1) (cons otherwise list) list))
        [n c] [(dim x 0) (last-of (shape x))]
        plane (if (= d 1) (reshape x [n 1 (dim x 1) c]) x)
        seen (patches plane (own size 1) [(own strides 1) (own padding [0 0]) (own dilation 1)] c outside)
        [_ oh ow _ kh kw _] (shape seen)
        made (f (reshape seen [n oh ow c (* kh kw)]))
        made (if (= d 1) (reshape made [n ow c]) made)]
    (if (get options :channels-first false) (channels-first made) made)))

; the greatest, and the mean, of each window; strides are its size where nothing is said, and what pads counts as 0 in means
(defn max-pool [x size & options] (pooled maximum x size options -inf))
(defn mean-pool [x size & options]
  (pooled (fn [y] (/ (sum y) (dim y -1))) x size options 0.0))

; ---- norms of channels, which are x's last dimension

; x by the mean and variance of each channel
(defn scaled-channels [x mean variance weight bias epsilon]
  (+ (* (- x mean) (* (elementwise (fn [v] (rsqrt (+ v epsilon))) variance) weight)) bias))

; batch norm by the batch's own mean and variance, of which the states [channels] keep the share `momentum` of each new one
(defn batch-norm-training [x weight bias mean-state variance-state momentum epsilon]
  (let [c (last-of (shape x))
        rows (reshape x [(quot (fold * 1 (shape x)) c) c])
        [m v] [(mean rows 0) (variance rows 0)]
        n (dim rows 0)
        keep (fn [state new] (write-state state (+ (* (- 1.0 momentum) (read-state state)) (* momentum new))))]
    (keep mean-state (stop-gradient m))
    (keep variance-state (stop-gradient (* v (/ n (max 1 (- n 1))))))
    (scaled-channels x m v weight bias epsilon)))

; batch norm by what the states kept
(defn batch-norm [x weight bias mean-state variance-state epsilon]
  (scaled-channels x (read-state mean-state) (read-state variance-state) weight bias epsilon))

; each image's groups of channels by their own mean and variance: "Group Normalization", Wu and He 2018.  Sums are taken of
; channels first, and what a group's are is spread over them again, so that all that is as large as x is read as it lies
(defn group-norm-of-images [x groups weight bias epsilon]
  (let [[n c] [(dim x 0) (last-of (shape x))]
        between (fold * 1 (rest (take (- (rank x) 1) (shape x))))
        each (divided "a number of channels of" c groups "groups")
        of-groups (fn [y] (mean (reshape (mean y 1) [(* n groups) each]) 1))
        spread (fn [m] (tensor [b n one 1 k c] (at m (+ (* b groups) (quot k each)))))
        y (reshape x [n between c])
        y (- y (spread (of-groups y)))
        y (* y (spread (elementwise (fn [v] (rsqrt (+ v epsilon))) (of-groups (square y)))))]
    (+ (* (reshape y (shape x)) weight) bias)))

; ---- resampling, along an axis to another size: places are the middles of equal parts, as in PyTorch without align_corners

(defn resampled [x axis size share]
  (let [axis (axis-of x axis) [a n c] (around x axis) ratio (/ n (* 1.0 size))
        weights (tensor [p size i n] (share (cast p f32) (cast i f32) ratio n))]
    (reshape (contract [a p c] weights [p i] (reshape x [a n c]) [a i c]) (replaced (shape x) axis size))))

; of the nearest element before
(defn resize-nearest [x axis size]
  (let [axis (axis-of x axis) [a n c] (around x axis) y (reshape x [a n c])]
    (reshape (tensor [i a p size k c] (at y i (quot (* p n) size) k)) (replaced (shape x) axis size))))

; straight between the two nearest
(defn resize-linear [x axis size]
  (resampled x axis size
             (fn [p i ratio n]
               (let [place (max 0.0 (min (- n 1.0) (- (* (+ p 0.5) ratio) 0.5)))]
                 (max 0.0 (- 1.0 (abs (- place i))))))))
